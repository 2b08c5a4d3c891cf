# cmake --install: the program, the library, its headers, and find_package(weft).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(TARGET weft_app)
  install(TARGETS weft_app RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(TARGETS weft EXPORT weft-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
# What is private to one backend or transport stays here; kernels/kernels.h is the contract.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/weft DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN "*-inl.h" EXCLUDE PATTERN "mpi_*.h" EXCLUDE
        PATTERN "kernels/cpu" EXCLUDE PATTERN "kernels/cuda" EXCLUDE
        PATTERN "kernels/meta" EXCLUDE PATTERN "kernels/reference" EXCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(WEFT_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/weft)
install(EXPORT weft-targets NAMESPACE weft:: DESTINATION ${WEFT_CMAKE_DIR})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/weft-config.cmake.in ${PROJECT_BINARY_DIR}/weft-config.cmake
                              INSTALL_DESTINATION ${WEFT_CMAKE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/weft-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/weft-config.cmake ${PROJECT_BINARY_DIR}/weft-config-version.cmake
              ${CMAKE_CURRENT_LIST_DIR}/LibraryDependencies.cmake
        DESTINATION ${WEFT_CMAKE_DIR})
