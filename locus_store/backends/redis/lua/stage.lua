-- Adds to a copy that nobody sees yet, and lets it live another hour. ARGV: fields and values of H.
local i = 1
while ARGV[i] do
  call('HSET', H, ARGV[i], ARGV[i + 1])
  if string.sub(ARGV[i], 1, 1) == 'r' then call('ZADD', R, 0, string.sub(ARGV[i], 2)) end
  i = i + 2
end
for _, key in ipairs({H, R}) do call('PEXPIRE', key, 3600000) end
return 1
