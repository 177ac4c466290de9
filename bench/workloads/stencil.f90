! Heat in a plate whose rows are walked across: `stencil [N [STEPS]]`.
! conductivity is looked up at random through material, old and new are walked column by column.
program stencil
  implicit none
  integer :: n, steps, i, j, step
  real(8), allocatable :: old(:, :), new(:, :), conductivity(:)
  integer, allocatable :: material(:, :)
  integer(8) :: state
  character(32) :: word
  n = 1200
  steps = 4
  if (command_argument_count() >= 1) then
     call get_command_argument(1, word)
     read (word, *) n
  end if
  if (command_argument_count() >= 2) then
     call get_command_argument(2, word)
     read (word, *) steps
  end if
  allocate (old(n, n), new(n, n), material(n, n), conductivity(n * n))
  state = 1
  do j = 1, n
     do i = 1, n
        state = iand(state * 1103515245_8 + 12345_8, 2147483647_8)
        material(i, j) = int(mod(state / 8, int(n, 8) * n)) + 1
        old(i, j) = mod(i + j, 100)
     end do
  end do
  conductivity = 0.1d0
  new = old
  do step = 1, steps
     do j = 2, n - 1
        do i = 2, n - 1
           new(i, j) = old(i, j) + conductivity(material(i, j)) * &
                (old(i - 1, j) + old(i + 1, j) + old(i, j - 1) + old(i, j + 1) - 4 * old(i, j))
        end do
     end do
     old = new
  end do
  print '(a, i0, a, i0, a, f0.3)', 'stencil ', n, ' steps ', steps, ' checksum ', sum(new) / n
end program stencil
