-- The score of a thread's entry in the index.
return call('ZSCORE', KEYS[1], arg())
