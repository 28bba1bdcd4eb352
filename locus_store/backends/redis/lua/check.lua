-- For each of several threads (the KEYS are their H): updated_at, 'expired', or '' if it has no checkpoints.
local now = tonumber(arg())
local answer = {}
for i, h in ipairs(KEYS) do
  local found = call('HMGET', h, 'u', 'x')
  answer[i] = not found[1] and '' or gone(found[2], now) and 'expired' or found[1]
end
return answer
