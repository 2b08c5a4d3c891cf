# Installs WEFT_BUILD below FOLDER, then configures, builds and runs CONSUMER against what is there.
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE ${FOLDER})
set(prefix ${FOLDER}/prefix)
run(${CMAKE_COMMAND} --install ${WEFT_BUILD} --prefix ${prefix})
run(${CMAKE_COMMAND} -S ${CONSUMER} -B ${FOLDER}/build -G Ninja -DCMAKE_BUILD_TYPE=Debug
    -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_PREFIX_PATH=${prefix})
run(${CMAKE_COMMAND} --build ${FOLDER}/build)
run(${FOLDER}/build/consumer)
if(EXISTS ${WEFT_BUILD}/weft)
  run(${prefix}/bin/weft --help)
endif()

# Nothing installed may still point at where weft was built.
get_filename_component(source ${CONSUMER}/../../.. ABSOLUTE)
file(GLOB_RECURSE installed ${prefix}/*.cmake ${prefix}/*.h)
foreach(path ${installed})
  file(READ ${path} text)
  string(FIND "${text}" "${source}/" at)
  if(NOT at EQUAL -1)
    message(FATAL_ERROR "${path} names the folder that weft was built in; use a generator expression in CMake")
  endif()
endforeach()
file(REMOVE_RECURSE ${FOLDER})
