# What weft is built on; every name is a Debian 12 package (docs/adr/0005-dependencies.md says why each).
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)                 # libfmt-dev
find_package(tomlplusplus REQUIRED)        # libtomlplusplus-dev
find_package(hwy REQUIRED)                 # libhwy-dev
find_package(PkgConfig REQUIRED)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)   # libxxhash-dev
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)        # libhwloc-dev
find_package(Protobuf REQUIRED)            # libprotobuf-dev, protobuf-compiler

find_path(XSMM_INCLUDE libxsmm.h REQUIRED) # libxsmm-dev
find_library(XSMM_LIBRARY xsmm REQUIRED)
find_library(XSMM_NOBLAS_LIBRARY xsmmnoblas REQUIRED)
add_library(weft_xsmm INTERFACE)
target_include_directories(weft_xsmm SYSTEM INTERFACE ${XSMM_INCLUDE})
target_link_libraries(weft_xsmm INTERFACE ${XSMM_LIBRARY} ${XSMM_NOBLAS_LIBRARY} ${CMAKE_DL_LIBS})

find_path(JSON_INCLUDE nlohmann/json.hpp REQUIRED)             # nlohmann-json3-dev
find_path(CLI11_INCLUDE CLI/CLI.hpp REQUIRED)                  # libcli11-dev

if(WEFT_MPI)
  find_package(MPI COMPONENTS CXX)         # libopenmpi-dev
endif()
if(WEFT_TESTS)
  find_package(GTest REQUIRED)             # libgtest-dev
endif()
