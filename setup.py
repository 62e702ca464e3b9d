"""What pyproject.toml cannot say: the folder `configs` is installed inside the package, where commands find it."""

from setuptools import find_packages, setup

CONFIGS = "rayctsl.configs"

setup(
    packages=[*find_packages(include=["rayctsl*", "serve*"]), CONFIGS],
    package_dir={CONFIGS: "configs"},
)
