-- Nothing.
return 1
