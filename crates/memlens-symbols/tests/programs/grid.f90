module grid
  implicit none
  real(8) :: u(10, 20)
  integer, allocatable :: cells(:)
  type zone
    real(8) :: heat
    real(8), allocatable :: parts(:)
    integer :: tag
  end type zone
  type(zone), allocatable :: zones(:)
contains
  subroutine fill(n)
    integer, intent(in) :: n
    integer :: i
    allocate(cells(n))
    do i = 1, n
      cells(i) = i
    end do
    u = n
  end subroutine fill
end module grid

subroutine outer(k)
  integer :: k, box
  common /box_block/ box
  box = k
end subroutine outer

subroutine advance_state(n)
  integer :: n
  common /state/ temp(100), vel(3, 50), steps
  real(8) :: temp, vel
  integer :: steps
  temp(n) = temp(n) + vel(1, n)
  steps = steps + 1
end subroutine advance_state

program main_program
  use grid
  implicit none
  call fill(5)
  call outer(3)
  call advance_state(1)
  if (cells(2) + int(u(1, 1)) == -1) print *, 'never'
end program main_program
