# A project with a block design around the board, for Vivado 2022.2 and later, run in this folder:
#
#   vivado -mode batch -source block_design.tcl -tclargs zcu104
#
# zcu104, kv260: the driver runs on the processing system, pages and records are in its DDR4. u55c: the driver is behind
# PCIe (AMD's driver xdma), pages and records are in HBM. Board files must be installed. Written from AMD's documents and
# read by another Tcl interpreter; no Vivado has run it.
set top @TOP@
set megahertz @MEGAHERTZ@
set memories {@MEMORIES@}
set pages {@PAGES@}            ;# those of them with pages
set kilobytes @APERTURE_KB@  ;# of the registers' aperture

set boards {
  zcu104 {xczu7ev-ffvc1156-2-e zcu104 on_zynq}
  kv260 {xck26-sfvc784-2LV-c kv260_som on_zynq}
  u55c {xcu55c-fsvh2892-2L-e au55c on_card}
}
set name [lindex $argv 0]
if {![dict exists $boards $name]} {
  error "the board must be one of [dict keys $boards], not '$name': vivado -source block_design.tcl -tclargs zcu104"
}
lassign [dict get $boards $name] part files design

proc ip {kind name args} {
  create_bd_cell -type ip -vlnv xilinx.com:ip:$kind $name
  if {[llength $args]} {
    set_property -dict $args [get_bd_cells $name]
  }
}

proc net {from args} {
  foreach to $args {
    connect_bd_net [get_bd_pins $from] [get_bd_pins $to]
  }
}

proc bus {from to} {
  connect_bd_intf_net [get_bd_intf_pins $from] [get_bd_intf_pins $to]
}

# Buses of the board by their names.
proc of_board {names} {
  set found {}
  foreach one $names {
    lappend found board/$one
  }
  return $found
}

# An interconnect from one master to `s_axil`, one from `masters` to a memory, and the reset of all of them.
proc around {clock resetn control masters memory} {
  ip proc_sys_reset reset
  ip smartconnect control CONFIG.NUM_SI 1 CONFIG.NUM_MI 1
  ip smartconnect memory CONFIG.NUM_SI [llength $masters] CONFIG.NUM_MI 1
  net $clock board/clk reset/slowest_sync_clk control/aclk memory/aclk
  net $resetn reset/ext_reset_in
  net reset/peripheral_reset board/rst
  net reset/peripheral_aresetn control/aresetn memory/aresetn
  bus $control control/S00_AXI
  bus control/M00_AXI board/s_axil
  set k 0
  foreach one $masters {
    bus $one memory/[format S%02d_AXI $k]
    incr k
  }
  bus memory/M00_AXI $memory
}

proc place_registers {space offset} {
  global kilobytes
  assign_bd_address -offset $offset -range ${kilobytes}K -target_address_space [get_bd_addr_spaces $space] \
    [get_bd_addr_segs board/s_axil/reg0]
  assign_bd_address
}

proc on_zynq {} {
  global megahertz memories
  ip zynq_ultra_ps_e ps
  apply_bd_automation -rule xilinx.com:bd_rule:zynq_ultra_ps_e -config {apply_board_preset 1} [get_bd_cells ps]
  set_property -dict [list \
    CONFIG.PSU__USE__M_AXI_GP0 1 CONFIG.PSU__USE__M_AXI_GP1 0 CONFIG.PSU__USE__M_AXI_GP2 0 \
    CONFIG.PSU__USE__S_AXI_GP2 1 CONFIG.PSU__SAXIGP2__DATA_WIDTH 128 \
    CONFIG.PSU__USE__IRQ0 1 CONFIG.PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ $megahertz] [get_bd_cells ps]
  around ps/pl_clk0 ps/pl_resetn0 ps/M_AXI_HPM0_FPD [of_board $memories] ps/S_AXI_HP0_FPD
  net ps/pl_clk0 ps/maxihpm0_fpd_aclk ps/saxihp0_fpd_aclk
  net board/irq ps/pl_ps_irq0
  place_registers ps/Data 0xA0000000
}

proc on_card {} {
  global megahertz kilobytes memories pages
  # XDMA takes up to 512 of a unit
  lassign [expr {$kilobytes < 1024 ? [list $kilobytes Kilobytes] : [list [expr {$kilobytes / 1024}] Megabytes]}] size unit
  # pins of these ports: constraints of the card
  create_bd_intf_port -mode Master -vlnv xilinx.com:interface:pcie_7x_mgt_rtl:1.0 pcie
  create_bd_intf_port -mode Slave -vlnv xilinx.com:interface:diff_clock_rtl:1.0 pcie_clock
  create_bd_intf_port -mode Slave -vlnv xilinx.com:interface:diff_clock_rtl:1.0 clock_100
  create_bd_port -dir I -type rst pcie_resetn
  set_property CONFIG.POLARITY ACTIVE_LOW [get_bd_ports pcie_resetn]
  set_property CONFIG.FREQ_HZ 100000000 [get_bd_intf_ports pcie_clock]
  set_property CONFIG.FREQ_HZ 100000000 [get_bd_intf_ports clock_100]

  ip util_ds_buf pcie_buffer CONFIG.C_BUF_TYPE IBUFDSGTE
  ip xdma xdma CONFIG.mode_selection Advanced CONFIG.pl_link_cap_max_link_width X16 \
    CONFIG.pl_link_cap_max_link_speed 8.0_GT/s CONFIG.axi_data_width 512_bit CONFIG.axilite_master_en true \
    CONFIG.axilite_master_size $size CONFIG.axilite_master_scale $unit CONFIG.xdma_num_usr_irq 1
  connect_bd_intf_net [get_bd_intf_ports pcie] [get_bd_intf_pins xdma/pcie_mgt]
  connect_bd_intf_net [get_bd_intf_ports pcie_clock] [get_bd_intf_pins pcie_buffer/CLK_IN_D]
  connect_bd_net [get_bd_ports pcie_resetn] [get_bd_pins xdma/sys_rst_n]
  net pcie_buffer/IBUF_OUT xdma/sys_clk_gt
  net pcie_buffer/IBUF_DS_ODIV2 xdma/sys_clk

  ip clk_wiz clocks CONFIG.PRIM_SOURCE Differential_clock_capable_pin CONFIG.PRIM_IN_FREQ 100 \
    CONFIG.CLKOUT1_REQUESTED_OUT_FREQ 100 CONFIG.CLKOUT2_USED true \
    CONFIG.CLKOUT2_REQUESTED_OUT_FREQ $megahertz CONFIG.USE_RESET false CONFIG.USE_LOCKED false
  connect_bd_intf_net [get_bd_intf_ports clock_100] [get_bd_intf_pins clocks/CLK_IN1_D]

  # one stack, through its first port; the n-th of several buses of pages through the port before the n-th part of it
  set shared xdma/M_AXI
  foreach one [of_board $memories] {
    if {$one ni [of_board [lrange $pages 1 end]]} {
      lappend shared $one
    }
  }
  set used {}
  for {set k 0} {$k < [llength $pages]} {incr k} {
    lappend used [expr {16 / [llength $pages] * $k}]
  }
  set ports {}
  for {set k 0} {$k < 16} {incr k} {
    if {$k ni $used} {
      lappend ports CONFIG.[format USER_SAXI_%02d $k] false
    }
  }
  ip hbm hbm CONFIG.USER_HBM_DENSITY 8GB CONFIG.USER_HBM_STACK 1 {*}$ports
  around clocks/clk_out2 xdma/axi_aresetn xdma/M_AXI_LITE $shared hbm/SAXI_00
  foreach one [lrange $pages 1 end] k [lrange $used 1 end] {
    set port [format %02d $k]
    ip smartconnect $one CONFIG.NUM_SI 1 CONFIG.NUM_MI 1
    net clocks/clk_out2 $one/aclk hbm/AXI_${port}_ACLK
    net reset/peripheral_aresetn $one/aresetn hbm/AXI_${port}_ARESET_N
    bus board/$one $one/S00_AXI
    bus $one/M00_AXI hbm/SAXI_$port
  }
  foreach one {control memory} {
    set_property CONFIG.NUM_CLKS 2 [get_bd_cells $one]
    net xdma/axi_aclk $one/aclk1
  }
  net clocks/clk_out1 hbm/HBM_REF_CLK_0 hbm/APB_0_PCLK
  net clocks/clk_out2 hbm/AXI_00_ACLK
  net reset/peripheral_aresetn hbm/AXI_00_ARESET_N hbm/APB_0_PRESET_N

  ip xpm_cdc_gen interrupt CONFIG.CDC_TYPE xpm_cdc_single
  net board/irq interrupt/src_in
  net clocks/clk_out2 interrupt/src_clk
  net xdma/axi_aclk interrupt/dest_clk
  net interrupt/dest_out xdma/usr_irq_req
  place_registers xdma/M_AXI_LITE 0x0
}

create_project -force -part $part $name $name
set found [lsort -dictionary [get_board_parts xilinx.com:$files:part0:*]]
if {![llength $found]} {
  error "no board files of $name: install them with Vivado's xhub::install, or clone AMD's board store"
}
set_property board_part [lindex $found end] [current_project]
set_property ip_repo_paths [file normalize ..] [current_project]
update_ip_catalog
create_bd_design $name
create_bd_cell -type ip -vlnv dana:ip:$top:1.0 board
$design
validate_bd_design
save_bd_design
make_wrapper -top -import [get_files $name.bd]
set_property top ${name}_wrapper [current_fileset]
puts "project $name/$name.xpr; to build it: launch_runs impl_1 -to_step write_bitstream"
