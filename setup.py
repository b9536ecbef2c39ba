"""Where the packages lie: the folders keep their given names, the import name is fairstep."""

from setuptools import setup

PACKAGES = {
    "fairstep": "engine",
    "fairstep.fairness": "engine/fairness",
    "fairstep.admission": "engine/admission",
    "fairstep.benchmarking": "engine/benchmarking",
    "fairstep.meters": "engine/meters",
    "fairstep.stores": "engine/stores",
    "fairstep.stepping": "engine/stepping",
    "fairstep.model": "engine/model",
    "fairstep.text": "engine/text",
    "fairstep.serving": "engine/serving",
    "fairstep.simulation": "engine/simulation",
    "fairstep.kernels": "kernels",
    "fairstep.kernels.cpu": "kernels/cpu",
    "fairstep.kernels.triton": "kernels/triton",
    "fairstep.kernels.triton.configs": "kernels/triton/configs",
}

setup(
    packages=list(PACKAGES),
    package_dir={"fairstep": "engine", "fairstep.kernels": "kernels"},
    package_data={"fairstep": ["py.typed"], "fairstep.kernels.cpu": ["*.h", "*.cpp"]},
)
