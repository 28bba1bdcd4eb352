-- Some announcements of metadata, after a given one.
I, M, N = KEYS[1], KEYS[2], KEYS[3]
local after, count = arg(), arg()
return call('ZRANGEBYLEX', M, '(' .. after, '+', 'LIMIT', 0, count)
