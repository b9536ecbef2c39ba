"""How fast the GPU kernels are: bytes and operations a second, beside what the GPU can do and what others take.

Without a GPU nothing is timed: it tells what each call must move and compute, and what that takes at least on named
cards. Little is imported here before main(), as transformers takes any module of this name for a package of its own.
"""

import argparse


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="few and small sizes: does it work")
    args = parser.parse_args()

    import torch

    import kernel_figures
    from report import emit

    figures = kernel_figures.timed if torch.cuda.is_available() else kernel_figures.untimed
    emit("kernels", figures(args.smoke))


if __name__ == "__main__":
    main()
