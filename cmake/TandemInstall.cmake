# `cmake --install` and what a project needs to use what was installed: find_package(Tandem CONFIG), pkg-config.
include(CMakePackageConfigHelpers)

install(TARGETS tandem EXPORT TandemTargets DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(folder ${TANDEM_FOLDERS})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tandem/${folder}
          FILES_MATCHING PATTERN "*.h" PATTERN cpu EXCLUDE PATTERN reference EXCLUDE)  # of kernels: the library's own
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/include/tandem.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tandem)
if(TANDEM_APPS)
  set_target_properties(tandem_cli train_cifar PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  install(TARGETS tandem_cli train_cifar RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Tandem)
install(EXPORT TandemTargets NAMESPACE Tandem:: DESTINATION ${package})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/TandemConfig.cmake.in ${PROJECT_BINARY_DIR}/TandemConfig.cmake
                              INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/TandemConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/TandemConfig.cmake ${PROJECT_BINARY_DIR}/TandemConfigVersion.cmake
              ${CMAKE_CURRENT_LIST_DIR}/FindOneDNN.cmake DESTINATION ${package})

set(pc_requires fmt)
set(pc_libs "-pthread")
if(TANDEM_OPENMP)
  string(APPEND pc_libs " ${OpenMP_CXX_FLAGS}")
endif()
if(TANDEM_ONEDNN)
  string(APPEND pc_libs " -ldnnl")
endif()
if(TANDEM_MPI)
  list(JOIN MPI_CXX_LIBRARIES " " mpi_libs)
  string(APPEND pc_libs " ${mpi_libs}")
endif()
file(RELATIVE_PATH pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${CMAKE_CURRENT_LIST_DIR}/tandem.pc.in ${PROJECT_BINARY_DIR}/tandem.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tandem.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
