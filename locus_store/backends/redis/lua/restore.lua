-- Puts threads into the index that it lost, or that lost some of their terms there. ARGV: thread, updated_at and terms of
-- each.
I, M, N = KEYS[1], KEYS[2], KEYS[3]
local thread = arg()
while thread do
  local updated, terms, list = arg(), arg(), {}
  if not call('ZSCORE', I, thread) then call('ZADD', I, '-' .. updated, thread) end
  each_term(terms, function(term) list[#list + 1] = term end)
  announce_terms(thread, list)
  thread = arg()
end
return 1
