! Procedures that options name as the source, and reports, do: one of a module switches counting on, one without a module off.
!
! Counted: 3 sweeps that load 500 elements each.
!
! memlens: --start-on shelves::sweep --stop-on done
! expect heap shelf: loads=1500 stores=0
! levels: -O0
! prints: 1500
module shelves
contains
  subroutine sweep(cells, total)
    real(8), intent(in) :: cells(:)
    real(8), intent(inout) :: total
    integer :: round, i
    do round = 1, 3
      do i = 1, size(cells)
        total = total + cells(i)
      end do
    end do
  end subroutine
end module

subroutine done(total)
  real(8) :: total
  total = total + 0
end subroutine

program named
  use shelves
  real(8), allocatable :: shelf(:)
  real(8) :: total
  allocate(shelf(500))
  shelf = 1
  total = 0
  call sweep(shelf, total)
  call done(total)
  shelf = 2
  write(*, '(I0)') nint(total)
end program
