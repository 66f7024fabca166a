import random

generator = random.Random()


def use() -> float:
    return generator.random()
