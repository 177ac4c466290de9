! Allocatable arrays are blocks of their elements; what a variable or a derived type has of them is a descriptor, without
! the elements' fields: 64 bytes for one dimension, 88 for two.
!
! fill writes each field of 1,000 points once, where it is optimised x and y together. x of the array, y of the module's
! and a weight of each grid are read once: 500,500 + 1,001,000 + 2 * 1,000.
!
! expect heap points: blocks=1 bytes=24000
! field heap points x: offset=0 bytes=8 loads=1000 stores=1000
! field heap points tag: offset=16 bytes=4 loads=0 stores=1000
! expect heap shapes::module_points: blocks=1 bytes=24000
! field heap shapes::module_points y: offset=8 bytes=8 loads=1000
! expect heap grids: blocks=1 bytes=320
! field heap grids points: offset=0 bytes=64
! field heap grids weights: offset=64 bytes=88
! field[-O0] heap grids n: offset=152 bytes=4 loads=0
! expect heap grids(i)%points: blocks=2 bytes=48000
! field heap grids(i)%points x: offset=0 bytes=8 loads=0 stores=2000
! field[-O0] heap grids(i)%points y: offset=8 bytes=8 loads=0 stores=2000
! prints: 1503500
module shapes
  implicit none
  type point
     real(8) :: x, y
     integer :: tag
  end type point
  type grid
     type(point), allocatable :: points(:)
     real(8), allocatable :: weights(:, :)
     integer :: n
  end type grid
  type(point), allocatable :: module_points(:)
contains
  subroutine fill(points)
    type(point), intent(inout) :: points(:)
    integer :: i
    do i = 1, size(points)
       points(i)%x = i
       points(i)%y = 2 * i
       points(i)%tag = 7
    end do
  end subroutine fill
end module shapes

program descriptors
  use shapes
  implicit none
  type(point), allocatable :: points(:)
  type(grid), allocatable :: grids(:)
  integer :: n, i
  real(8) :: sum
  character(32) :: word
  n = 1000
  if (command_argument_count() >= 1) then
     call get_command_argument(1, word)
     read (word, *) n
  end if
  allocate (points(n), module_points(n))
  call fill(points)
  call fill(module_points)
  allocate (grids(2))
  do i = 1, 2
     allocate (grids(i)%points(n))
     allocate (grids(i)%weights(n, 2))
     call fill(grids(i)%points)
     grids(i)%weights = 1
     grids(i)%n = n
  end do
  sum = 0
  do i = 1, n
     sum = sum + points(i)%x + module_points(i)%y + grids(1)%weights(i, 1) + grids(2)%weights(i, 2)
  end do
  print '(i0)', int(sum)
end program descriptors
