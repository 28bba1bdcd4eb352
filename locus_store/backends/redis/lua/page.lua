-- A part of the index: 'whole', 'none' (there are no threads) or 'lost', how many were looked at, and id and score of
-- those that begin with a prefix. From a rank on, or all that are newer than a score.
I, M, N = KEYS[1], KEYS[2], KEYS[3]
local start, count, newer, prefix = tonumber(arg()), tonumber(arg()), arg(), arg()
if not call('ZSCORE', I, '') then
  return {call('EXISTS', I) == 0 and call('GET', N) == '0' and 'none' or 'lost', 0}
end
local listed
if newer ~= '' then
  listed = call('ZRANGEBYSCORE', I, '-inf', '(' .. newer, 'WITHSCORES')
else
  listed = call('ZRANGE', I, start, start + count - 1, 'WITHSCORES')
end
local answer = {'whole', #listed / 2}
for i = 1, #listed, 2 do
  if listed[i] ~= '' and string.sub(listed[i], 1, #prefix) == prefix then
    answer[#answer + 1] = listed[i]
    answer[#answer + 1] = listed[i + 1]
  end
end
return answer
