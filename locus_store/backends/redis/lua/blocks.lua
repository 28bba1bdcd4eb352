-- Blocks of a thread. ARGV: p<number> for the payload, l<number> for its length only. Changes and removals come first.
local f = call('HMGET', H, 'g', 's', 'e')
local answer = {f[1] or '', f[2] or '0', f[3] or ''}
for i, wanted in ipairs(ARGV) do
  local name = 'b' .. string.sub(wanted, 2)
  if string.sub(wanted, 1, 1) == 'p' then
    answer[i + 3] = call('HGET', H, name) or ''
  else
    answer[i + 3] = call('HSTRLEN', H, name)
  end
end
return answer
