! Arrays that are allocated. A comment at the end of a line is the name of what its calls allocate.
module m
  implicit none
  real(8), allocatable :: field(:,:)
  real(8), allocatable :: line(:)
end module
program main
  use m
  implicit none
  integer, parameter :: n = 64
  integer :: i, j
  integer, allocatable :: idx(:)
  real(8), allocatable :: x(:)
  real(8), pointer :: p(:)
  type cell
    real(8), allocatable :: hist(:)
    integer :: id
  end type
  type(cell), allocatable :: cells(:)
  real(8) :: s
  allocate(field(n,n)) ! m::field, field
  allocate(line(n)) ! m::line, line
  allocate(idx(1000)) ! idx
  allocate(x(1000)) ! x
  allocate(p(3000)) ! p
  allocate(cells(100)) ! cells
  do i = 1, 100
    allocate(cells(i)%hist(500)) ! cells(i)%hist
    cells(i)%hist(:) = i
  end do
  field = 1
  line(:) = 2
  x(:) = 3
  do i = 1, 1000
    idx(i) = mod(i * 7919, 1000) + 1
  end do
  do j = 1, 5
    call fill(p, 3000, j)
  end do
  s = sum(p) + sum(field) + sum(line) + x(idx(7))
  do i = 1, 100
    s = s + sum(cells(i)%hist)
  end do
  print *, s
contains
  subroutine fill(a, n, k)
    integer, intent(in) :: n, k
    real(8), intent(inout) :: a(n)
    real(8) :: work(n) ! work
    real(8), allocatable :: tmp(:)
    integer :: i
    allocate(tmp(n)) ! tmp
    do i = 1, n
      work(i) = k * i
      tmp(i) = work(n - i + 1)
    end do
    a = tmp + work
  end subroutine
end program
