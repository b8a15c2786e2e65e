# Read by cpack once for each kind of package: what a .deb has and the .tgz has not.
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_PACKAGING_INSTALL_PREFIX "/usr")
  set(CPACK_PRE_BUILD_SCRIPTS "${CPACK_NIBBLE_SOURCE}/cmake/package_service.cmake")
endif()
