-- Cluster, after a change: what the index says of a thread. With an empty updated_at the thread is taken out; this, and
-- taking out terms, is done only if the score is still the one that the caller saw.
I, M, N = KEYS[1], KEYS[2], KEYS[3]
local thread, seen, updated, add, remove = arg(), arg(), arg(), arg(), arg()
local score = call('ZSCORE', I, thread)
local mine = seen == (score or '')
local function list(terms)
  local found = {}
  each_term(terms, function(term) found[#found + 1] = term end)
  return found
end
if updated ~= '' then
  open_index()
  local fractional = score and tonumber(score) % 1 ~= 0
  if mine or not score or fractional or -tonumber(score) < tonumber(updated) then
    call('ZADD', I, '-' .. updated, thread)
  end
  announce_terms(thread, list(add))
end
if mine then
  withdraw_terms(thread, list(remove))
  if updated == '' then unlist(thread) end
end
return call('ZSCORE', I, thread) or ''
