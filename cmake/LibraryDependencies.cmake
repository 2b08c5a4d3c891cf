# What libweft.a is linked with: found when weft is built, and again by find_package(weft) in another project.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)                 # libfmt-dev
find_package(hwy REQUIRED)                 # libhwy-dev
find_package(PkgConfig REQUIRED)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)   # libxxhash-dev
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)        # libhwloc-dev
find_package(Protobuf REQUIRED)            # libprotobuf-dev, protobuf-compiler

find_path(XSMM_INCLUDE libxsmm.h REQUIRED) # libxsmm-dev
find_library(XSMM_LIBRARY xsmm REQUIRED)
find_library(XSMM_NOBLAS_LIBRARY xsmmnoblas REQUIRED)
if(NOT TARGET weft::xsmm)
  add_library(weft::xsmm INTERFACE IMPORTED)
  target_include_directories(weft::xsmm SYSTEM INTERFACE ${XSMM_INCLUDE})
  target_link_libraries(weft::xsmm INTERFACE ${XSMM_LIBRARY} ${XSMM_NOBLAS_LIBRARY} ${CMAKE_DL_LIBS})
endif()

if(WEFT_LINKS_MPI)
  find_package(MPI REQUIRED COMPONENTS CXX)   # libopenmpi-dev
endif()
