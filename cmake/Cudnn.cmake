# CUDNN_FOUND, CUDNN_INCLUDE and CUDNN_LIBRARY, after CUDAToolkit was found: 9.10 or newer, which describes devices that
# are not there, and takes masks that are infinite.
find_path(CUDNN_INCLUDE cudnn_version.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
if(CUDNN_INCLUDE AND CUDNN_LIBRARY)
  file(STRINGS ${CUDNN_INCLUDE}/cudnn_version.h CUDNN_NUMBERS REGEX "define CUDNN_(MAJOR|MINOR) ")
  string(REGEX REPLACE "[^0-9;]" "" CUDNN_NUMBERS "${CUDNN_NUMBERS}")
  list(JOIN CUDNN_NUMBERS "." CUDNN_VERSION)
  if(CUDNN_VERSION VERSION_GREATER_EQUAL 9.10)
    set(CUDNN_FOUND ON)
  endif()
endif()
