# Runs before a .deb is put together: the service and its settings to where systemd and dpkg look for
# them.
set(root "${CPACK_TEMPORARY_INSTALL_DIRECTORY}")
file(COPY "${CPACK_NIBBLE_SOURCE}/deploy/systemd/nibble.service"
     DESTINATION "${root}/usr/lib/systemd/system")
file(COPY "${CPACK_NIBBLE_SOURCE}/deploy/systemd/nibble.toml" DESTINATION "${root}/etc/nibble")
file(COPY "${CPACK_NIBBLE_SOURCE}/deploy/debian/copyright" DESTINATION "${root}/usr/share/doc/nibble")
