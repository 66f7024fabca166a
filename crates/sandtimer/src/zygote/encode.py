import pickle


def encode(value, large=65536):
    buffers = []

    def keep(buffer):
        raw = buffer.raw()
        if raw.nbytes < large:
            return True
        buffers.append(raw)
        return False

    return pickle.dumps(value, 5, buffer_callback=keep), buffers
