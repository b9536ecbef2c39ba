"""The same front, waiting rooms and step loop under a virtual clock, with a runner that only takes modelled seconds."""
