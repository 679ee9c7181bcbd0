! Writes a checkpoint of the values 0, 1, 4, 9 ... and reads it back, without the mount.
!
!     checkpoint STORE PATH COUNT
!
! STORE is the store's directory, PATH a path in the service. Prints the sum of what it has read.
program checkpoint
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: error_unit
  use forebay
  implicit none
  character(len=4096) :: store, path, word
  real(c_double), allocatable, target :: field(:)
  type(c_ptr) :: service, file
  integer(c_int64_t) :: values, i, done
  integer :: flags

  if (command_argument_count() /= 3) then
    write (error_unit, '(a)') 'usage: checkpoint STORE PATH COUNT'
    stop 2
  end if
  call get_command_argument(1, store)
  call get_command_argument(2, path)
  call get_command_argument(3, word)
  read (word, *) values
  allocate (field(values))

  call check(forebay_connect(trim(store)//c_null_char, service), 'connect')
  flags = ior(forebay_write, ior(forebay_create, forebay_truncate))
  call check(forebay_open(service, trim(path)//'.tmp'//c_null_char, flags, int(o'644', c_int), file), 'create')
  do i = 1, values
    field(i) = real(i - 1, c_double)**2
  end do
  done = forebay_pwrite(file, c_loc(field), 8_c_size_t*values, 0_c_int64_t)
  call check(int(min(done, 0_c_int64_t), c_int), 'write')
  call check(forebay_fsync(file), 'publish')
  call check(forebay_close(file), 'publish')
  call check(forebay_rename(service, trim(path)//'.tmp'//c_null_char, trim(path)//c_null_char), 'rename')

  field = 0
  call check(forebay_open(service, trim(path)//c_null_char, forebay_read, 0_c_int, file), 'open')
  done = forebay_pread(file, c_loc(field), 8_c_size_t*values, 0_c_int64_t)
  if (done /= 8*values) call check(-1_c_int, 'read')
  write (*, '(es24.17)') sum(field)
  call check(forebay_close(file), 'close')
  call check(forebay_disconnect(service), 'disconnect')

contains

  subroutine check(outcome, what)
    integer(c_int), intent(in) :: outcome
    character(len=*), intent(in) :: what
    if (outcome >= 0) return
    write (error_unit, '(4a)') 'checkpoint: ', what, ': ', forebay_message()
    stop 1
  end subroutine check
end program checkpoint
