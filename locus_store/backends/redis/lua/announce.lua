-- Cluster, before a save: the thread is in the index from now on, with a score of its own for the time being (half a
-- microsecond beyond a whole one). Returns that score, by which `settle` sees whether anybody else came between.
I, M, N = KEYS[1], KEYS[2], KEYS[3]
local thread, now, terms = arg(), tonumber(arg()), arg()
open_index()
local score = call('ZSCORE', I, thread)
if score then now = math.max(now, math.floor(-tonumber(score)) + 1) end
call('ZADD', I, string.format('%.1f', -now - 0.5), thread)
local list = {}
each_term(terms, function(term) list[#list + 1] = term end)
announce_terms(thread, list)
return call('ZSCORE', I, thread)
