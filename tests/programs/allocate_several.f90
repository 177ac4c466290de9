! Arrays that one statement allocates have their own names, at each level of optimisation, components of an array's elements, too.
!
! The cells' sum is 3 (500 + 2 1,000).
!
! expect heap first: blocks=1 bytes=80000
! expect heap second: blocks=1 bytes=160000
! expect heap third: blocks=1 bytes=40000
! expect heap cells(i)%near: blocks=3 bytes=12000
! expect heap cells(i)%far: blocks=3 bytes=24000
! prints: 40000 7500
program allocate_several
  implicit none
  type cell
     real(8), allocatable :: near(:), far(:)
  end type cell
  type(cell), allocatable :: cells(:)
  real(8) :: sums
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
  allocate (cells(3))
  do i = 1, 3
     allocate (cells(i)%near(n / 20), cells(i)%far(n / 10))
     cells(i)%near = 1
     cells(i)%far = 2
  end do
  sums = 0
  do i = 1, 3
     sums = sums + sum(cells(i)%near) + sum(cells(i)%far)
  end do
  print '(i0, a, i0)', third(n) + int(sum(first) + sum(second)) - 10000 - third(2) * (n - 1), ' ', int(sums)
end program allocate_several
