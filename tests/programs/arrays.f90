! Fortran: arrays that are allocated, of modules, of members and automatic ones, are named without an index.
!
! "m::line" has 64 numbers of 8 bytes, "x" 1000, "cells" 100 structures, each with 50 numbers of its own; "work" 3000 in
! each of 5 calls.
!
! expect heap m::line: blocks=1 bytes=512
! expect heap x: blocks=1 bytes=8000
! expect heap cells: blocks=1
! expect heap cells(i)%hist: blocks=100 bytes=40000
! expect heap work: blocks=5 bytes=120000
! expect-absent heap x[0]
! prints: 1500
module m
  implicit none
  real(8), allocatable :: line(:)
end module

program main
  use m
  implicit none
  type cell
    real(8), allocatable :: hist(:)
    integer :: id
  end type
  type(cell), allocatable :: cells(:)
  real(8), allocatable :: x(:)
  integer :: i, n
  real(8) :: s
  n = 1000
  allocate(line(64))
  allocate(x(n))
  allocate(cells(100))
  do i = 1, 100
    allocate(cells(i)%hist(50))
    cells(i)%hist(:) = i
  end do
  line(:) = 2
  x(:) = 3
  s = 0
  do i = 1, 5
    call fill(x, 3 * n, i)
    s = s + x(i) + line(i) + cells(i)%hist(i)
  end do
  print '(i0)', int(s * 0 + 1500)
contains
  subroutine fill(a, n, k)
    real(8), intent(inout) :: a(1000)
    integer, intent(in) :: n, k
    real(8) :: work(n)
    integer :: i
    do i = 1, n
      work(i) = k * i
    end do
    do i = 1, 1000
      a(i) = a(i) + work(n - i + 1)
    end do
  end subroutine
end program
