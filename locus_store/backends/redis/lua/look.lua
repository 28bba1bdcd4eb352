-- What the index must say of each of several threads (the KEYS are their H): updated_at, 'expired', or '' if it has no
-- checkpoints; and, if they are asked for, its terms.
local now, with_terms = tonumber(arg()), arg() == '1'
local answer = {}
for _, h in ipairs(KEYS) do
  local found = call('HMGET', h, 'u', 'x')
  answer[#answer + 1] = not found[1] and '' or gone(found[2], now) and 'expired' or found[1]
  if with_terms then answer[#answer + 1] = found[1] and table.concat(all_terms(h)) or '' end
end
return answer
