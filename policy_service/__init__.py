"""Policy service: chooses arms, learns from outcomes, pools counts across replicas."""
