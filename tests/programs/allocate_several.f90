! Arrays that one statement allocates have their own names, at each level of optimisation.
!
! expect heap first: blocks=1 bytes=80000
! expect heap second: blocks=1 bytes=160000
! expect heap third: blocks=1 bytes=40000
! prints: 40000
program allocate_several
  implicit none
  real(8), allocatable :: first(:), second(:, :)
  integer, allocatable :: third(:)
  integer :: n, i
  character(32) :: word
  n = 10000
  if (command_argument_count() >= 1) then
     call get_command_argument(1, word)
     read (word, *) n
  end if
  allocate (first(n), second(n, 2), third(n))
  first = 1
  second = 2
  third = 0
  do i = 2, n
     third(i) = third(i - 1) + int(first(i) + second(i, 1) * second(i - 1, 2) - 4)
  end do
  print '(i0)', third(n) + int(sum(first) + sum(second)) - 10000 - third(2) * (n - 1)
end program allocate_several
