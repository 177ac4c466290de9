! Arrays that a statement of several lines allocates have their own names, at each level of optimisation. The compiler
! says of such a statement that it is in its last line.
!
! third rises by 1 + 2 + 2 + 3 - 4 - 1 = 3 from 0; cells(i) has 1,000 values i + i third(2i), where third is 3, 9 and 15:
! 4 + 20 + 48.
!
! expect heap first: blocks=1 bytes=80000
! expect heap second: blocks=1 bytes=160000
! expect heap third: blocks=1 bytes=40000
! expect heap fourth: blocks=1 bytes=40000
! expect heap fifth: blocks=1 bytes=40000
! expect heap cells(i)%values: blocks=3 bytes=24000
! prints: 29997 72000
program allocate_continued
  implicit none
  type cell
     real(8), allocatable :: values(:)
  end type cell
  real(8), allocatable :: first(:), second(:, :)
  integer, allocatable :: third(:), fourth(:), fifth(:)
  type(cell), allocatable :: cells(:)
  integer :: n, i, status
  character(32) :: word
  n = 10000
  if (command_argument_count() >= 1) then
     call get_command_argument(1, word)
     read (word, *) n
  end if
  allocate (first(n), &
       second(n, 2), & ! two columns, more than fifth has
       third(n))
  allocate ( &
       fourth(n), &

       ! One line more.
       &fifth(n))
  allocate (cells(3))
  do i = 1, 3
     allocate (cells(i)%values(n / 10), &
          stat=status)
     cells(i)%values = i
  end do
  first = 1
  second = 2
  third = 0
  fourth = 3
  fifth = 4
  do i = 2, n
     third(i) = third(i - 1) + int(first(i) + second(i, 1) + second(i - 1, 2)) + fourth(i - 1) - fifth(i) - 1
  end do
  do i = 1, 3
     cells(i)%values = cells(i)%values + i * third(2 * i)
  end do
  print '(i0, 1x, i0)', third(n), int(sum(cells(1)%values) + sum(cells(2)%values) + sum(cells(3)%values))
end program allocate_continued
