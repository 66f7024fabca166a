import threading
import time

threading.Thread(target=time.sleep, args=(600.0,), daemon=True).start()


def one() -> int:
    return 1
