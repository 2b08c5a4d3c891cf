# How weft's own targets are compiled: the language, the warnings, the sanitizers, ccache.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_program(CCACHE ccache)
if(CCACHE)
  # Precompiled headers are cached only when ccache is told to trust them (and GCC is given -fpch-preprocess).
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_CURRENT_LIST_DIR}/launch-compiler)
endif()

add_library(weft_options INTERFACE)
target_compile_options(weft_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Werror
                                              -Wno-missing-field-initializers
                                              $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 takes "text" + std::string for an overflow (GCC bugs 105329 and 105651).
  target_compile_options(weft_options INTERFACE -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread
                                                -Wno-array-bounds)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_UNITY_BUILD)
  # Of types in anonymous namespaces, where the file is included by the one that is compiled.
  target_compile_options(weft_options INTERFACE -Wno-subobject-linkage)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
  # Clang warns of what libstdc++ 12 does in its own headers, where our code makes it do so.
  target_compile_options(weft_options INTERFACE -Wno-deprecated-declarations)
  set(PRECOMPILED_BY_CLANG <chrono> <condition_variable> <deque> <limits> <numeric> <set> <sstream> <stdexcept>
                           <unordered_map> <nlohmann/json.hpp>)
endif()
if(WEFT_FUZZ)
  target_compile_options(weft_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(WEFT_SANITIZE)
  # Of the library alone is asked what UBSan asks (src/CMakeLists.txt); the other sanitizers look at all code.
  string(REPLACE ",undefined" "" sanitized_everywhere "${WEFT_SANITIZE}")
  target_compile_options(weft_options INTERFACE -fsanitize=${sanitized_everywhere} -fno-omit-frame-pointer
                                                -fno-sanitize-recover=all)
  target_link_options(weft_options INTERFACE -fsanitize=${WEFT_SANITIZE})
  if(WEFT_SANITIZE MATCHES thread AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # GCC says that TSan does not model std::atomic_thread_fence; weft uses none.
    target_compile_options(weft_options INTERFACE -Wno-tsan)
  endif()
  # Kernels are the same source for each instruction set: one shows every race and every access out of bounds.
  target_compile_definitions(weft_options INTERFACE HWY_DISABLED_TARGETS=HWY_AVX3)
endif()

# The program and the tests spend their time in the library: what they are made of is compiled quickly instead. (With the
# library at -O0 too, ASan's build took five minutes less on two cores, and its tests over six minutes more.)
add_library(weft_quick_options INTERFACE)
if(WEFT_SANITIZE)
  target_compile_options(weft_quick_options INTERFACE -O0)
else()
  target_compile_options(weft_quick_options INTERFACE $<$<CONFIG:Release>:-O1>)
endif()
target_link_libraries(weft_quick_options INTERFACE weft_options)
