# What weft is built on; every name is a Debian 12 package (docs/adr/0005-dependencies.md says why each).
include(${CMAKE_CURRENT_LIST_DIR}/LibraryDependencies.cmake)

find_path(JSON_INCLUDE nlohmann/json.hpp REQUIRED)             # nlohmann-json3-dev
find_path(CLI11_INCLUDE CLI/CLI.hpp REQUIRED)                  # libcli11-dev
find_path(BOOST_INCLUDE boost/beast/http/parser.hpp REQUIRED)  # libboost-dev

if(WEFT_MPI)
  find_package(MPI COMPONENTS CXX)         # libopenmpi-dev
endif()
if(WEFT_CUDA)
  enable_language(CUDA)                    # NVIDIA's toolkit, 12.8 or newer
  find_package(CUDAToolkit 12.8 REQUIRED)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has it
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  find_path(NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})  # 2.18 or newer; without it ranks meet on the host
  find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
  if(NCCL_INCLUDE AND NCCL_LIBRARY)
    set(NCCL_FOUND ON)
  endif()
  include(${CMAKE_CURRENT_LIST_DIR}/Cudnn.cmake)  # without it attention is ours alone
endif()
if(WEFT_TESTS)
  find_package(GTest REQUIRED)             # libgtest-dev
endif()
