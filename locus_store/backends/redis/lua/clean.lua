-- Single server: takes threads of which nothing is left out of the index. KEYS: I, M, N, then H of each; ARGV: terms,
-- then the threads' ids.
I, M, N = KEYS[1], KEYS[2], KEYS[3]
local terms = arg()
for i = 4, #KEYS do
  local thread = arg()
  if call('HEXISTS', KEYS[i], 'u') == 0 then
    each_term(terms, function(term) withdraw_terms(thread, {term}) end)
    unlist(thread)
  end
end
return 1
