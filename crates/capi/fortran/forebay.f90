! Forebay for Fortran: the functions of forebay.h that programs on arrays need. Compile it with the program.
!
! Paths end with c_null_char; results below zero are negative error numbers, and forebay_message() says what failed. Modes of files
! are decimal: int(o'644').
module forebay
  use, intrinsic :: iso_c_binding
  implicit none
  private :: c_message, c_length

  integer(c_int), parameter :: forebay_read = 1, forebay_write = 2, forebay_append = 4
  integer(c_int), parameter :: forebay_truncate = 8, forebay_create = 16, forebay_create_new = 32, &
    forebay_temporary = 64
  integer(c_int), parameter :: forebay_lock_shared = 1, forebay_lock_exclusive = 2

  interface
    integer(c_int) function forebay_connect(store, connection) bind(c)
      import :: c_int, c_char, c_ptr
      character(kind=c_char), intent(in) :: store(*)
      type(c_ptr), intent(out) :: connection
    end function forebay_connect

    integer(c_int) function forebay_disconnect(connection) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: connection
    end function forebay_disconnect

    integer(c_int) function forebay_open(connection, path, flags, mode, file) bind(c)
      import :: c_int, c_char, c_ptr
      type(c_ptr), value :: connection
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int), value :: flags, mode
      type(c_ptr), intent(out) :: file
    end function forebay_open

    integer(c_int) function forebay_close(file) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: file
    end function forebay_close

    integer(c_int64_t) function forebay_pread(file, buffer, length, offset) bind(c)
      import :: c_int64_t, c_size_t, c_ptr
      type(c_ptr), value :: file, buffer
      integer(c_size_t), value :: length
      integer(c_int64_t), value :: offset
    end function forebay_pread

    integer(c_int64_t) function forebay_pwrite(file, buffer, length, offset) bind(c)
      import :: c_int64_t, c_size_t, c_ptr
      type(c_ptr), value :: file, buffer
      integer(c_size_t), value :: length
      integer(c_int64_t), value :: offset
    end function forebay_pwrite

    integer(c_int) function forebay_fsync(file) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: file
    end function forebay_fsync

    integer(c_int) function forebay_ftruncate(file, length) bind(c)
      import :: c_int, c_int64_t, c_ptr
      type(c_ptr), value :: file
      integer(c_int64_t), value :: length
    end function forebay_ftruncate

    integer(c_int) function forebay_lock(file, mode, start, length) bind(c)
      import :: c_int, c_int64_t, c_ptr
      type(c_ptr), value :: file
      integer(c_int), value :: mode
      integer(c_int64_t), value :: start, length
    end function forebay_lock

    integer(c_int) function forebay_unlock(file, start, length) bind(c)
      import :: c_int, c_int64_t, c_ptr
      type(c_ptr), value :: file
      integer(c_int64_t), value :: start, length
    end function forebay_unlock

    integer(c_int) function forebay_mkdir(connection, path, mode) bind(c)
      import :: c_int, c_char, c_ptr
      type(c_ptr), value :: connection
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int), value :: mode
    end function forebay_mkdir

    integer(c_int) function forebay_unlink(connection, path) bind(c)
      import :: c_int, c_char, c_ptr
      type(c_ptr), value :: connection
      character(kind=c_char), intent(in) :: path(*)
    end function forebay_unlink

    integer(c_int) function forebay_rename(connection, from, to) bind(c)
      import :: c_int, c_char, c_ptr
      type(c_ptr), value :: connection
      character(kind=c_char), intent(in) :: from(*), to(*)
    end function forebay_rename

    integer(c_int) function forebay_laminate(connection, path) bind(c)
      import :: c_int, c_char, c_ptr
      type(c_ptr), value :: connection
      character(kind=c_char), intent(in) :: path(*)
    end function forebay_laminate

    type(c_ptr) function c_message() bind(c, name='forebay_error_message')
      import :: c_ptr
    end function c_message

    integer(c_size_t) function c_length(text) bind(c, name='strlen')
      import :: c_size_t, c_ptr
      type(c_ptr), value :: text
    end function c_length
  end interface

contains

  ! What the last call of this thread that failed has failed at.
  function forebay_message() result(text)
    character(len=:), allocatable :: text
    character(kind=c_char), pointer :: bytes(:)
    type(c_ptr) :: message
    integer :: i, n
    message = c_message()
    n = int(c_length(message))
    call c_f_pointer(message, bytes, [n])
    allocate (character(len=n) :: text)
    do i = 1, n
      text(i:i) = bytes(i)
    end do
  end function forebay_message
end module forebay
