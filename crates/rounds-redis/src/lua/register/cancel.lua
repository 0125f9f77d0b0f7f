return cancel()
