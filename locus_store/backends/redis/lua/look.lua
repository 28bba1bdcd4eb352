-- What the index must say of each of several threads (H and V of each are the KEYS): updated_at, 'expired', 'torn' if H
-- was thrown out, or '' if it has no checkpoints; and, if they are asked for, its terms.
local now, with_terms = tonumber(arg()), arg() == '1'
local answer = {}
for k = 1, #KEYS, 2 do
  local h = KEYS[k]
  local found = call('HMGET', h, 'u', 'x')
  local said = found[1] or (torn(KEYS[k + 1], false) and 'torn' or '')
  answer[#answer + 1] = gone(found[2], now) and found[1] and 'expired' or said
  if with_terms then answer[#answer + 1] = found[1] and table.concat(all_terms(h)) or '' end
end
return answer
