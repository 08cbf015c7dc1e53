# The target OneDNN::onednn. Not by oneDNN's own CMake package: Debian's also asks for OpenCL, which Tandem does not use.
find_path(ONEDNN_INCLUDE dnnl.hpp)
find_library(ONEDNN_LIBRARY dnnl)
mark_as_advanced(ONEDNN_INCLUDE ONEDNN_LIBRARY)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OneDNN REQUIRED_VARS ONEDNN_LIBRARY ONEDNN_INCLUDE)
if(OneDNN_FOUND AND NOT TARGET OneDNN::onednn)
  add_library(OneDNN::onednn UNKNOWN IMPORTED)
  set_target_properties(OneDNN::onednn PROPERTIES IMPORTED_LOCATION "${ONEDNN_LIBRARY}"
                        INTERFACE_INCLUDE_DIRECTORIES "${ONEDNN_INCLUDE}")
endif()
