package topology

// A DMI is what the firmware says of the machine: /sys/class/dmi/id. Serial numbers are not read.
type DMI struct {
	Vendor, Product, Family, Version string // sys_vendor, product_name, product_family, product_version
	BoardVendor, Board               string // board_vendor, board_name
	ChassisVendor, ChassisTag        string // chassis_vendor, chassis_asset_tag
	BIOS                             string // bios_vendor
}

// dmi reads the firmware's words. Many Arm boards have none, and sandboxes hide them.
func (t tree) dmi() DMI {
	var d DMI
	for _, f := range []struct {
		file string
		into *string
	}{
		{"sys_vendor", &d.Vendor}, {"product_name", &d.Product}, {"product_family", &d.Family}, {"product_version", &d.Version},
		{"board_vendor", &d.BoardVendor}, {"board_name", &d.Board},
		{"chassis_vendor", &d.ChassisVendor}, {"chassis_asset_tag", &d.ChassisTag}, {"bios_vendor", &d.BIOS},
	} {
		*f.into = t.line("sys/class/dmi/id/" + f.file)
	}
	return d
}
