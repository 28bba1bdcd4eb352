-- Says that the index is complete, after it was made anew. That there are no threads is remembered for an hour.
I, M, N = KEYS[1], KEYS[2], KEYS[3]
if call('EXISTS', I) == 0 then
  call('DEL', M)
  call('SET', N, '0', 'PX', 3600000)
  return 0
end
call('ZADD', I, '+inf', '')
if call('EXISTS', M) == 1 then call('ZADD', M, 0, '') end
call('SET', N, call('EXISTS', M) == 1 and '2' or '1')
return 1
