! Fortran: an allocatable array and a saved one.
!
! "work" has 1000 double precision elements, stored once and loaded once: 1000 of each at -O0. An optimiser
! may use wider accesses, so only the bytes are certain there: 8000 of each.
!
! expect[-O2] heap work: load_bytes=8000 store_bytes=8000
! expect[-O0] heap work: loads=1000 stores=1000 load_bytes=8000 store_bytes=8000
! prints: 500500
program stride
    implicit none
    double precision, allocatable :: work(:)
    double precision :: total
    integer :: i
    allocate (work(1000))
    do i = 1, 1000
        work(i) = dble(i)
    end do
    total = 0
    call add(work, total)
    print '(i0)', int(total)
    deallocate (work)
contains
    subroutine add(values, total)
        double precision, intent(in) :: values(:)
        double precision, intent(inout) :: total
        integer :: i
        do i = 1, size(values)
            total = total + values(i)
        end do
    end subroutine add
end program stride
