"""The model: weights, decoder, sampler, runner. torch lives here and in kernels/."""
