-- The threads for which all of some terms are announced: 'whole', 'none' or 'lost', then id and score ('' if the index
-- does not have it).
I, M, N = KEYS[1], KEYS[2], KEYS[3]
local wanted = arg()
local known = call('GET', N)
if not call('ZSCORE', I, '') then return {call('EXISTS', I) == 0 and known == '0' and 'none' or 'lost'} end
if not call('ZSCORE', M, '') then return {call('EXISTS', M) == 0 and known == '1' and 'none' or 'lost'} end
local function range(term) return '[' .. term, '[' .. term .. '\255' end
local rarest, fewest
each_term(wanted, function(term)
  local count = call('ZLEXCOUNT', M, range(term))
  if not fewest or count < fewest then rarest, fewest = term, count end
end)
local answer = {'whole'}
for _, member in ipairs(call('ZRANGEBYLEX', M, range(rarest))) do
  local thread, all = string.sub(member, 17), true
  each_term(wanted, function(term) all = all and call('ZSCORE', M, term .. thread) end)
  if all then
    answer[#answer + 1] = thread
    answer[#answer + 1] = call('ZSCORE', I, thread) or ''
  end
end
return answer
